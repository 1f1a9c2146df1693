//! What is asked and answered: requests, outcomes, the host that is told, the settings.

pub(crate) mod request;
pub(crate) mod settings;
