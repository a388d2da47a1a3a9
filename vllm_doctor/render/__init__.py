"""Reports for people and machines. Each module has `render(report) -> str`; none examines anything."""
