"""Models as they are ready to run, kept in the cache folder: a later load neither reads the model's files nor needs transformers.

`file.py` is how a file is laid out and checked, `contents.py` what is kept of a model, `place.py` where, how much, and when it is out of
date. What is kept is only ever a copy: whatever is wrong with it, the model is loaded from its own files, as if there were none.
"""
