"""Tables, figures and pages made from rows and checkpoints."""
