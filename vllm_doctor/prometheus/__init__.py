"""Many servers, by the Prometheus that scrapes them: signals as queries in, readings of every engine out."""
