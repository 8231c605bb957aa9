//! What every accepting loop of the front does after a failure.

use std::io;
use std::time::Duration;

/// After a failed accept (descriptors used up, say) trying again at once would only spin.
pub async fn pause_after_error(error: &io::Error) {
    tracing::error!(%error, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
