"""One module or one room for each command of ``goqueue``."""
