WHAT = list[bytes]
