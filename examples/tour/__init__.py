"""The tour of GoQueue: a day in a shop, in about a minute, on a real broker. Run it by ``make demo``.

Each chapter is a module. It does something, shows it, and checks what it shows against what was sent; if that is not so
the tour says what is wrong and ends with 1. Whichever way it ends, it leaves no process and no file behind.
"""
