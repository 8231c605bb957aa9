//! What runs on a data transfer node: GridFTP server, client, data movers, orchestrator.
