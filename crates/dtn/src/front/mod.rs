//! The server's control side: listeners, logins and control connections.
