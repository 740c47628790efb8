"""One kind of kernel a module: its rows, its bounds and its fit."""
