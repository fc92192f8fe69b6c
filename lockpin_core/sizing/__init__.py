"""How large a call can get, from the bytes of its body alone."""
