"""Linux: the processes of a server, its CPUs and control groups, its files. /proc and /sys in, facts out."""
