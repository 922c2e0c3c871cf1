"""Word vectors of several languages in one space: UMSE's word-mapping baseline, without any translations."""
