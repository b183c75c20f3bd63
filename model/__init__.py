"""RNNsearch: its equations, its training step, its search."""
