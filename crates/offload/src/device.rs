//! What a device has to offer to be put behind [`Workers`](crate::Workers).

use codec::CodecId;

/// A kind of device, opened once a worker thread.
pub trait Device: Send + Sync + 'static {
    /// Its name, for people: `qat`.
    fn name(&self) -> &'static str;

    /// What its payloads are. A device that writes another format than one that [`codec`] reads is of no use.
    fn codec(&self) -> CodecId;

    /// Opens a session in the thread that calls, which is the only one to use it. `level` is 1 (fast) to 12
    /// (small); a device that knows fewer takes its nearest.
    ///
    /// # Errors
    /// [`OpenError`], if there is no device or it has nothing left to give.
    fn open(&self, level: u8) -> Result<Box<dyn Session>, OpenError>;
}

/// A session with a device. It need not be `Send`: it lives and dies in one thread.
pub trait Session {
    /// Compresses `input` into `out`, waiting for the device, and returns the payload's length.
    ///
    /// # Errors
    /// [`DeviceError`]; the job is done by the CPU then.
    fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DeviceError>;
}

/// Why a device did not do a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// It has too much to do. The next job may fare better.
    #[error("the device is busy (code {0})")]
    Busy(i32),
    /// It did not fit in the room given, or took part of the input only.
    #[error("the device wrote too much or read too little (code {0})")]
    Length(i32),
    /// Anything else. After some of these in a row the session is given up, and opened anew later.
    #[error("the device failed (code {0})")]
    Failed(i32),
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The library is not there, or lacks a function.
    #[error("{library} cannot be loaded: {reason}; install it, or leave --offload away")]
    Library {
        /// What was looked for.
        library: String,
        /// The loader's words.
        reason: String,
    },
    /// The library speaks otherwise than expected.
    #[error("{library} is of a version that is not known: {reason}")]
    Version {
        /// The library.
        library: String,
        /// What was expected.
        reason: &'static str,
    },
    /// There is a library and no device behind it.
    #[error("{step} failed with {code}: {meaning}; check the device and its driver, or omit --offload")]
    Device {
        /// The call that failed.
        step: &'static str,
        /// Its return code.
        code: i32,
        /// What that means.
        meaning: &'static str,
    },
}
