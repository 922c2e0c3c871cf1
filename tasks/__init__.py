"""seqio registrations. Importing a module of this package registers its tasks; nothing else lives here."""
