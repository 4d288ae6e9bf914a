WHAT = int
