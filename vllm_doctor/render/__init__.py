"""Reports for people and machines: a report comes in, a text goes out; nothing is examined here.

For people: `report_page` makes a report a page of blocks (`page`), with the sentences of `parts`; `text`, `markdown`
and `html` paint it, and so does the full-screen application. For machines: JSON by schema, and monitoring formats.
"""
