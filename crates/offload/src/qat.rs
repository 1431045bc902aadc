//! Intel QuickAssist (QAT) through QATzip's library, loaded at run time.
//!
//! Facts of the interface (names, order of fields, constants, return codes) are those of `qatzip.h` in QATzip
//! 1.1 to 1.3.1 (API 2.x, github.com/intel/QATzip). Of the session's parameters only the first eight fields
//! are relied on; the library fills in all others itself. The version before (1.0) has one field more in the
//! middle, which is recognised and refused.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;

use codec::{CodecId, Decompressor, testdata};
use libloading::Library;

use crate::{Device, DeviceError, OpenError, Session};

/// Names to look for: the library's current interface version, and the developer's link.
const NAMES: [&str; 2] = ["libqatzip.so.3", "libqatzip.so"];

const QZ_OK: c_int = 0;
/// `qzInit` of a process that has done it already.
const QZ_DUPLICATE: c_int = 1;
const QZ_BUF_ERROR: c_int = -3;
const QZ_TIMEOUT: c_int = -5;
const QZ_NOSW_NO_INST_ATTACH: c_int = -103;
const QZ_NOSW_LOW_MEM: c_int = -104;

const QZ_DYNAMIC_HDR: c_int = 0;
const QZ_DIR_COMPRESS: c_int = 0;
const QZ_DIR_BOTH: c_int = 2;
/// A DEFLATE stream without any wrapper.
const QZ_DEFLATE_RAW: c_int = 3;
/// The algorithm's number, that of gzip's header.
const QZ_DEFLATE: u8 = 8;
const LEVEL_MAX: u8 = 9;

/// `QzSession_T`, and room for fields of later versions.
#[repr(C)]
struct RawSession {
    hardware_status: c_long,
    thread_status: c_int,
    internal: *mut c_void,
    total_in: c_ulong,
    total_out: c_ulong,
    later: [u64; 16],
}

/// `QzSessionParams_T` as far as it is used, and room for the rest of it and of later versions.
#[repr(C)]
struct Parameters {
    huffman_header: c_int,
    direction: c_int,
    format: c_int,
    level: c_uint,
    algorithm: u8,
    forks_max: c_uint,
    software_backup: u8,
    hardware_buffer_bytes: c_uint,
    rest: [u64; 32],
}

type Init = unsafe extern "C" fn(*mut RawSession, u8) -> c_int;
type WithParameters = unsafe extern "C" fn(*mut RawSession, *mut Parameters) -> c_int;
type Defaults = unsafe extern "C" fn(*mut Parameters) -> c_int;
type Compress =
    unsafe extern "C" fn(*mut RawSession, *const u8, *mut c_uint, *mut u8, *mut c_uint, c_uint) -> c_int;
type End = unsafe extern "C" fn(*mut RawSession) -> c_int;

/// The library's functions that are used.
struct Api {
    init: Init,
    defaults: Defaults,
    setup: WithParameters,
    compress: Compress,
    teardown: End,
    close: End,
    name: String,
    /// Never unloaded: it starts its own threads, which would keep running in unmapped code.
    _library: ManuallyDrop<Library>,
}

/// Intel QAT as a [`Device`].
pub struct Qat(Arc<Api>);

impl Qat {
    /// Loads the library: the one at a path, or the one that the system finds. Whether there is a device
    /// behind it is found out by [`Device::open`].
    ///
    /// # Errors
    /// [`OpenError::Library`] if it is not there or lacks a function, [`OpenError::Static`] in a static
    /// program.
    pub fn load(path: Option<&Path>) -> Result<Qat, OpenError> {
        let names: Vec<String> = match path {
            Some(path) => vec![path.display().to_string()],
            None => NAMES.map(str::to_owned).to_vec(),
        };
        if cfg!(target_feature = "crt-static") {
            return Err(OpenError::Static { library: names[0].clone() });
        }
        let mut first = None;
        for name in names {
            match Api::load(&name) {
                Ok(api) => return Ok(Qat(Arc::new(api))),
                Err(error) => {
                    let reason = error.to_string().replace('\n', " ");
                    first.get_or_insert(OpenError::Library { library: name, reason });
                }
            }
        }
        Err(first.unwrap_or(OpenError::Library { library: "libqatzip".into(), reason: "no name".into() }))
    }
}

impl Api {
    fn load(name: &str) -> Result<Api, libloading::Error> {
        // SAFETY: loading runs the library's initialisers. The user named or installed it: it is as trusted
        // as any library that the program links.
        let library = unsafe { Library::new(name)? };
        // SAFETY: the types are those that qatzip.h declares for these names in all versions from 1.1 on;
        // older and later ones are recognised by `Qat::open` from the values of the defaults. The functions
        // stay valid, since the library is never unloaded.
        unsafe {
            Ok(Api {
                init: *library.get(b"qzInit\0")?,
                defaults: *library.get(b"qzGetDefaults\0")?,
                setup: *library.get(b"qzSetupSession\0")?,
                compress: *library.get(b"qzCompress\0")?,
                teardown: *library.get(b"qzTeardownSession\0")?,
                close: *library.get(b"qzClose\0")?,
                name: name.to_owned(),
                _library: ManuallyDrop::new(library),
            })
        }
    }

    /// The library's default parameters, if they are where this version has them.
    fn parameters(&self) -> Result<Parameters, OpenError> {
        let mut parameters = Parameters {
            huffman_header: -1,
            direction: -1,
            format: -1,
            level: 0,
            algorithm: 0,
            forks_max: 0,
            software_backup: u8::MAX,
            hardware_buffer_bytes: 0,
            rest: [0; 32],
        };
        // SAFETY: the library writes its own structure, of 52 bytes in the versions known, into 288 bytes.
        let code = unsafe { (self.defaults)(&raw mut parameters) };
        let known = code == QZ_OK
            && parameters.huffman_header == QZ_DYNAMIC_HDR
            && parameters.direction == QZ_DIR_BOTH
            && (0..=QZ_DEFLATE_RAW).contains(&parameters.format)
            && (1..=12).contains(&parameters.level)
            && parameters.algorithm == QZ_DEFLATE
            && parameters.software_backup <= 1
            && parameters.hardware_buffer_bytes.is_power_of_two()
            && (1024..=2 << 20).contains(&parameters.hardware_buffer_bytes);
        known.then_some(parameters).ok_or_else(|| OpenError::Version {
            library: self.name.clone(),
            reason: "its default parameters are not those of QATzip 1.1 to 1.3",
        })
    }
}

impl Device for Qat {
    fn name(&self) -> &'static str {
        "qat"
    }

    fn codec(&self) -> CodecId {
        CodecId::Deflate
    }

    fn open(&self, level: u8) -> Result<Box<dyn Session>, OpenError> {
        let mut parameters = self.0.parameters()?;
        parameters.direction = QZ_DIR_COMPRESS;
        parameters.format = QZ_DEFLATE_RAW;
        parameters.level = level.clamp(1, LEVEL_MAX).into();
        // The library's own software would be zlib, slower than ours, and would hide what the device does.
        parameters.software_backup = 0;
        let raw = Box::into_raw(Box::new(RawSession {
            hardware_status: 0,
            thread_status: 0,
            internal: std::ptr::null_mut(),
            total_in: 0,
            total_out: 0,
            later: [0; 16],
        }));
        let mut session = QatSession { api: Arc::clone(&self.0), raw };
        // SAFETY: the session is zeroed, as the library wants a new one, and stays where it is.
        let code = unsafe { (self.0.init)(raw, 0) };
        if code != QZ_OK && code != QZ_DUPLICATE {
            return Err(refused("qzInit", code));
        }
        // SAFETY: as above; the parameters are only read during the call.
        let code = unsafe { (self.0.setup)(raw, &raw mut parameters) };
        if code != QZ_OK {
            return Err(refused("qzSetupSession", code));
        }
        // If the first qzInit of a process found no device, the second returns "duplicate": only a trial
        // shows it.
        let trial = testdata::text_like(1, 4096);
        let (mut out, mut back) = (vec![0; 8192], vec![0; trial.len()]);
        let bytes = session.compress(&trial, &mut out).map_err(|error| match error {
            DeviceError::Busy(code) | DeviceError::Length(code) | DeviceError::Failed(code) => {
                refused("qzCompress on trial", code)
            }
        })?;
        let sound = Decompressor::new().decompress(CodecId::Deflate, &out[..bytes], None, &mut back);
        if sound.is_err() || back != trial {
            return Err(OpenError::Device {
                step: "qzCompress on trial",
                code: 0,
                meaning: "its output does not decompress to its input",
            });
        }
        Ok(Box::new(session))
    }
}

/// Returns the error for a code, with its meaning in qatzip.h.
fn refused(step: &'static str, code: c_int) -> OpenError {
    let meaning = match code {
        -1 => "invalid parameter",
        QZ_BUF_ERROR => "too little room",
        QZ_TIMEOUT => "the device timed out",
        11 | -101 => "no QAT device found",
        12 | -102 => "no memory driver found",
        13 | QZ_NOSW_NO_INST_ATTACH => "no instance of the device is free",
        14 | QZ_NOSW_LOW_MEM => "too little pinned memory",
        16 | -116 => "the device cannot write raw DEFLATE",
        _ => "it failed",
    };
    OpenError::Device { step, code, meaning }
}

/// A session of one thread: `*mut` keeps it there.
struct QatSession {
    api: Arc<Api>,
    raw: *mut RawSession,
}

impl Session for QatSession {
    fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DeviceError> {
        let Ok(mut input_bytes) = c_uint::try_from(input.len()) else {
            return Err(DeviceError::Length(0));
        };
        let mut out_bytes = c_uint::try_from(out.len()).unwrap_or(c_uint::MAX);
        let wanted = input_bytes;
        // SAFETY: the session was set up and is used by this thread alone; both buffers are live, cannot
        // overlap, and are passed with no more than their own lengths. 1: the stream ends with this input.
        let code = unsafe {
            (self.api.compress)(
                self.raw,
                input.as_ptr(),
                &raw mut input_bytes,
                out.as_mut_ptr(),
                &raw mut out_bytes,
                1,
            )
        };
        match code {
            QZ_OK if input_bytes == wanted && out_bytes as usize <= out.len() => Ok(out_bytes as usize),
            QZ_OK | QZ_BUF_ERROR => Err(DeviceError::Length(code)),
            QZ_TIMEOUT | QZ_NOSW_NO_INST_ATTACH | QZ_NOSW_LOW_MEM => Err(DeviceError::Busy(code)),
            _ => Err(DeviceError::Failed(code)),
        }
    }
}

impl Drop for QatSession {
    fn drop(&mut self) {
        // SAFETY: the session is this one's own and was given to qzInit at least; both calls are made for one
        // that was not set up, too. It is not used afterwards, and was boxed.
        unsafe {
            (self.api.teardown)(self.raw);
            (self.api.close)(self.raw);
            drop(Box::from_raw(self.raw));
        }
    }
}
