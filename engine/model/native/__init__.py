"""Our own kernels for CPUs with bfloat16 instructions or AVX2, in C: products, gated products, norms, and attention over the block pool.

`build.py` finds or makes the library, `library.py` makes its functions known to torch, `modules.py` puts them into a model, `lane.py` runs
steps through them. Nothing depends on them: where there is no compiler, no such CPU or no such torch, the general lane runs instead.
"""
