"""How each kind of part is shown to a reflector, and how its reply becomes an override."""
