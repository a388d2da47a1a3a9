"""What sources gave, as files: a bundle that is replayed like any other source, and those that ship as demos."""
