"""A report in sentences, part by part. `whole`: for a page that is read at leisure; else for a terminal's reader."""
