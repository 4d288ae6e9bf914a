"""One strict reader: values with their places, kinds of values, classes as kinds."""
