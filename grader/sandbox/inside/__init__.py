"""The program that runs learners' code; it is copied into the sandbox and imports nothing else.

``main`` serves, ``confine`` takes rights away, ``protocol`` carries values over the pipe.
"""
