"""One vLLM server over HTTP, a saved scrape of one, and the last scrape that a hook kept. Bytes in, scrapes out."""
