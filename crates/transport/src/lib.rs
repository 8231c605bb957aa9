//! Data channels: tuned TCP, MODE E and MODE S loops, buffer pool, rate limits, checksums.
