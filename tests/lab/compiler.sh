# To be sourced: whether the vLLM of the lab can compile its model, which wants g++ and Python's headers.
can_compile() {
  command -v g++ >/dev/null &&
    python3 -c 'import pathlib, sysconfig; assert pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()' 2>/dev/null
}
