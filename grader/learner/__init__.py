"""What a learner runs: checks in a notebook, checks of a notebook or of a folder of them."""
