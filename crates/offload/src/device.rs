//! Interface of a device behind [`Workers`](crate::Workers).

use codec::CodecId;

/// A kind of device, opened once per worker thread.
pub trait Device: Send + Sync + 'static {
    /// Name of the device in messages and the status: `qat`.
    fn name(&self) -> &'static str;

    /// Format of the payloads that the device makes. [`codec`] must be able to read it.
    fn codec(&self) -> CodecId;

    /// Opens a session in the calling thread, which is the only one to use it. `level` is 1 (fast) to 12
    /// (small); a device with fewer levels uses the nearest.
    ///
    /// # Errors
    ///
    /// [`OpenError`], if there is no device or it has no resources left.
    fn open(&self, level: u8) -> Result<Box<dyn Session>, OpenError>;
}

/// A session with a device. It need not be `Send`: it stays in one thread.
pub trait Session {
    /// Compresses `input` into `out`, waiting for the device, and returns the payload's length.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]; the CPU then does the job.
    fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DeviceError>;
}

/// Reason why a device did not do a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device is busy. The next job may succeed.
    #[error("the device is busy (code {0})")]
    Busy(i32),
    /// The payload did not fit, or only a part of the input was used.
    #[error("the device wrote too much or read too little (code {0})")]
    Length(i32),
    /// Anything else. After some of these in a row the session is closed, and opened again later.
    #[error("the device failed (code {0})")]
    Failed(i32),
}

/// Reason why no session can be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The library does not exist, or lacks a function.
    #[error("{library} cannot be loaded: {reason}; install it, or omit --offload")]
    Library {
        /// Name or path of the library.
        library: String,
        /// Message of the loader.
        reason: String,
    },
    /// This program was linked statically, and cannot load any library.
    #[error(
        "{library} cannot be loaded by a statically linked program; use the Debian package or a build of your own, or \
         omit --offload"
    )]
    Static {
        /// Name or path of the library.
        library: String,
    },
    /// The library has an unexpected interface.
    #[error("{library} has an unknown version: {reason}")]
    Version {
        /// The library.
        library: String,
        /// Expectation that the library does not meet.
        reason: &'static str,
    },
    /// There is a library but no device.
    #[error("{step} failed with {code}: {meaning}; check the device and its driver, or omit --offload")]
    Device {
        /// The call that failed.
        step: &'static str,
        /// Return code of the function.
        code: i32,
        /// Meaning of the code.
        meaning: &'static str,
    },
}
