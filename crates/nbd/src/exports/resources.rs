//! Resources shared by the connections of a server, at all its addresses: limits, places, memory, the record
//! of clients.

use std::sync::Arc;

use crate::audit::Audit;
use crate::fence::Fences;
use crate::limits::admission::Admissions;
use crate::limits::budget::Budget;
use crate::limits::config::{ConfigError, ServerConfig};

pub(crate) struct Resources {
    pub(crate) config: ServerConfig,
    pub(crate) budget: Budget,
    pub(crate) admissions: Arc<Admissions>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) fences: Fences,
}

impl Resources {
    /// # Errors
    /// If a limit is out of range.
    pub(crate) fn new(config: ServerConfig) -> Result<Arc<Resources>, ConfigError> {
        config.validate()?;
        let audit = Arc::new(Audit::default());
        Ok(Arc::new(Resources {
            budget: Budget::new(config.total_buffer_bytes_max),
            admissions: Arc::new(Admissions::new(&config, audit.clone())),
            audit,
            fences: Fences::default(),
            config,
        }))
    }
}
