//! The image of the ledger that a tool fetches part by part.

use crate::random::random_u64;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// How long an image is kept for a tool that does not come back.
const KEPT_MAX: Duration = Duration::from_secs(600);

/// The image that was asked for last, and its number.
#[derive(Default)]
pub(crate) struct KeptImage(Arc<Mutex<Option<(u64, Bytes)>>>);

impl KeptImage {
    /// Keeps an image, instead of the one before; its number.
    pub(crate) fn keep(&self, image: Bytes) -> u64 {
        let id = random_u64();
        *self.0.lock() = Some((id, image));
        let kept = KeptImage(self.0.clone());
        tokio::spawn(async move {
            tokio::time::sleep(KEPT_MAX).await;
            kept.forget(id);
        });
        id
    }

    /// The image with this number, if it is still kept.
    pub(crate) fn get(&self, id: u64) -> Option<Bytes> {
        let kept = self.0.lock();
        let (kept_id, image) = kept.as_ref()?;
        (*kept_id == id).then(|| image.clone())
    }

    pub(crate) fn forget(&self, id: u64) {
        self.0.lock().take_if(|(kept_id, _)| *kept_id == id);
    }
}
