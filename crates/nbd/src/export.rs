//! The devices a server offers, by name, and what all its connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use service::Device;

use crate::budget::Budget;
use crate::config::{ConfigError, ServerConfig};
use crate::protocol::MAX_STRING_BYTES;

/// A device under a name.
pub struct Export<D> {
    /// What clients ask for, at most 4096 bytes.
    pub name: String,
    /// Words for people, at most 4096 bytes; may be empty.
    pub description: String,
    /// What is served.
    pub device: Arc<D>,
}

/// What all connections of a server share: exports, configuration, memory.
pub struct Shared<D> {
    exports: Vec<Export<D>>,
    pub(crate) config: ServerConfig,
    pub(crate) budget: Budget,
    connections: AtomicUsize,
}

impl<D: Device> Shared<D> {
    /// Offers `exports`; the first is also the one clients get who ask for the empty name.
    ///
    /// # Errors
    /// [`ConfigError`] when there is no export, two have one name, or a limit is out of range.
    pub fn new(exports: Vec<Export<D>>, config: ServerConfig) -> Result<Arc<Self>, ConfigError> {
        config.validate()?;
        if exports.is_empty() {
            return Err(ConfigError::NoExport);
        }
        for (index, export) in exports.iter().enumerate() {
            if export.name.len() > MAX_STRING_BYTES || export.description.len() > MAX_STRING_BYTES {
                return Err(ConfigError::LongName(export.name.chars().take(32).collect()));
            }
            if exports[..index].iter().any(|earlier| earlier.name == export.name) {
                return Err(ConfigError::SameName(export.name.clone()));
            }
        }
        let budget = Budget::new(config.total_buffer_bytes_max);
        Ok(Arc::new(Self { exports, config, budget, connections: AtomicUsize::new(0) }))
    }

    /// All exports, the default first.
    pub fn exports(&self) -> &[Export<D>] {
        &self.exports
    }

    /// The export of that name; the first for the empty name, unless one is called so.
    pub fn find(&self, name: &str) -> Option<&Export<D>> {
        let named = self.exports.iter().find(|export| export.name == name);
        named.or_else(|| self.exports.first().filter(|_| name.is_empty()))
    }

    /// Connections being served now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts a connection in for as long as the guard lives; `None` when there are too many.
    pub(crate) fn admit(&self) -> Option<ConnectionGuard<'_>> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let guard = ConnectionGuard(&self.connections);
        (before < self.config.connections_max).then_some(guard)
    }
}

/// Counts a connection while it lives.
pub(crate) struct ConnectionGuard<'a>(&'a AtomicUsize);

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
