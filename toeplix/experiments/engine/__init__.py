"""What experiments share: scales, cases, rows, verdicts, intervals, figures."""
