"""Linear layers whose weights are laid out for the CPU's matrix kernels: the kernels, the weight grids, the modules that hold them."""
