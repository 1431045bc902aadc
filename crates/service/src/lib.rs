//! Threads, queues and in-flight requests: many clients, many cores, one engine a drive.

pub mod device;

pub use device::{Device, DeviceError, Extent, ExtentKind, Geometry};
