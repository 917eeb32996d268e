"""One module or one room for each command of ``goqueue``.

What writes output, measures or calls a broker is imported on use, so that ``goqueue version`` stays fast.
"""
