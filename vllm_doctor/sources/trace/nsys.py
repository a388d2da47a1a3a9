def is_export(path):
    return False
