"""Take in what a class handed in: ``files`` finds notebooks in folders and archives, ``names``
says whose they are, ``roster`` who is in the class, ``take_in`` which of several counts.
"""
