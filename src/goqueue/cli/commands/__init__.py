"""One module or one room for each command of ``goqueue``.

What measures, calls a broker or reads its files is imported on use, so that ``goqueue version`` stays fast.
"""
