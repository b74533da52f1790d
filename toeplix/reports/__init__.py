"""Tables, figures and HTML pages made from rows and checkpoints.

html             the template of all pages
run_page         the report of a training run
spectrum_rows    spectral analysis of filters; spectrum_table, spectrum_figures, spectrum_page show it
symbol_plot      plots of symbols
filters          the filters of a checkpoint; filter_curves: taps and symbols for the explorer
errata           errors in the paper's Table 1
"""
