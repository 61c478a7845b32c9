"""Write about a class: ``data`` reads records and scores, ``page`` and ``table`` show them."""
