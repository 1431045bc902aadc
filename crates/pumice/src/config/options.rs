//! Options of a server and of its drives. Each is declared once for the command line and the configuration
//! file, with its name, help and type.

use nbd::{Access, Address};
use serde::Deserialize;
use service::{MonitorSettings, OpenSettings, ThrottleSettings, Throttling};

use crate::attach_method::AttachMethod;

use super::values::{
    AbsoluteAddress, AbsolutePath, AbsoluteSocket, AttachBy, BackgroundCpu, Client, CommandText, Connections,
    DirectIo, FullText, Http, InFile, Io, Levels, LogFormat, MapCache, Name, Offload, ReadCacheSize,
    RequestMemory, Sandbox, ScrubEvery, Seconds, Threads, ThrottleAt, ThrottleFloor, UserName, WriteCache,
    one_of,
};

/// Defines a set of options, each of which is optional.
macro_rules! options {
    (
        $(#[$outer:meta])*
        $type:ident {
            in the file alone { $($(#[$file_meta:meta])* $file:ident: $file_value:ty,)* }
            $($(#[$meta:meta])* $field:ident: $value:ty,)*
        }
    ) => {
        #[derive(Clone, Debug, Default, PartialEq, Deserialize, clap::Args)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        $(#[$outer])*
        pub(crate) struct $type {
            $($(#[$file_meta])* #[arg(skip)] pub(super) $file: Option<$file_value>,)*
            $($(#[$meta])* pub(crate) $field: Option<$value>,)*
        }

        impl $type {
            /// Keys that are also command-line options, in order, with the form of their values in the file.
            pub(crate) const FORMS: &[(&str, &str)] = &[$((stringify!($field), <$value as InFile>::FORM),)*];

            /// Returns these options, with missing ones taken from `other`.
            pub(super) fn or(self, other: &$type) -> $type {
                $type {
                    $($file: self.$file.or_else(|| other.$file.clone()),)*
                    $($field: self.$field.or_else(|| other.$field.clone()),)*
                }
            }

            /// Returns the names of the options that differ, except for those that exist only in the file.
            pub(crate) fn differences(&self, other: &$type) -> Vec<String> {
                let mut keys = Vec::new();
                $(
                    if self.$field.clone().unwrap_or_default() != other.$field.clone().unwrap_or_default() {
                        keys.push(stringify!($field).replace('_', "-"));
                    }
                )*
                keys
            }
        }
    };
}

options! {
    /// Options of a server.
    #[command(next_help_heading = "Server options")]
    ServerOptions {
        in the file alone {
            nbd: Vec<AbsoluteAddress>,
            admin: AbsoluteSocket,
            tls: TlsTable,
            warn_at: Levels,
            on_event: CommandText,
        }
        /// HTTP listening address for monitoring (read-only), HOST:PORT or unix:SOCKET: /metrics for
        /// Prometheus, /healthz, /status
        #[arg(long, value_name = "ADDRESS")]
        http: Http,
        /// Log format: text or json [default: text]
        #[arg(long, value_name = "FORMAT", value_parser = one_of::<LogFormat>(&["text", "json"]),
            hide_possible_values = true)]
        log_format: LogFormat,
        /// Number of worker threads [default: one per core]
        #[arg(long, value_name = "COUNT")]
        threads: Threads,
        /// I/O engine for the backing: auto, uring or plain [default: auto]
        #[arg(long, value_name = "HOW", env = "PUMICE_IO", value_parser = one_of::<Io>(&["auto", "uring", "plain"]),
            hide_possible_values = true)]
        io: Io,
        /// Compression device: none, qat, or qat:PATH with the path of libqatzip.so [default: none]
        #[arg(long, value_name = "DEVICE")]
        offload: Offload,
        /// Allow NBD and HTTP over TCP without TLS on non-loopback addresses
        #[arg(long, num_args = 0, default_missing_value = "true")]
        insecure: bool,
        /// Allow NBD over TCP on non-loopback addresses with TLS but without client certificates
        #[arg(long, num_args = 0, default_missing_value = "true")]
        tls_anonymous: bool,
        /// Maximum number of NBD connections [default: 1024]
        #[arg(long, value_name = "COUNT")]
        max_connections: Connections,
        /// Maximum number of NBD connections per IPv4 address, IPv6 network of 64 bits, or user of a Unix
        /// socket [default: half of max-connections]
        #[arg(long, value_name = "COUNT")]
        max_connections_per_peer: Connections,
        /// Time limit of an NBD handshake, in seconds; a tenth of it while connections are scarce [default:
        /// 30]
        #[arg(long, value_name = "SECONDS")]
        handshake_timeout: Seconds,
        /// Time without progress after which an NBD client that holds memory others wait for is disconnected,
        /// in seconds [default: 30]
        #[arg(long, value_name = "SECONDS")]
        stall_timeout: Seconds,
        /// Time without a request after which an NBD client is disconnected, in seconds [default: none]
        #[arg(long, value_name = "SECONDS")]
        idle_timeout: Seconds,
        /// Memory for request data of all NBD connections [default: 256M]
        #[arg(long, value_name = "SIZE")]
        request_memory: RequestMemory,
        /// Memory for a cache of decompressed blocks, shared by all drives; 0 disables it [default: 64M]
        #[arg(long, value_name = "SIZE")]
        read_cache: ReadCacheSize,
        /// User to run as, once sockets and drives are open, if started by root; root: stay root
        /// [default: pumice, or nobody]
        #[arg(long, value_name = "NAME", env = "PUMICE_USER")]
        user: UserName,
        /// Sandbox: write only to drives and sockets, refuse unneeded system calls [default: on]
        #[arg(long, value_name = "WHETHER", value_parser = one_of::<Sandbox>(&["on", "off"]),
            hide_possible_values = true)]
        sandbox: Sandbox,
    }
}

options! {
    /// Options of a drive.
    #[command(next_help_heading = "Drive options")]
    DriveOptions {
        in the file alone {
            path: AbsolutePath,
            name: Name,
            nbd: Vec<AbsoluteAddress>,
            clients: Vec<Client>,
            clients_read_only: Vec<Client>,
            attach: bool,
            by: AttachBy,
        }
        /// Memory for the map of each drive [default: 128M]
        #[arg(long, value_name = "SIZE")]
        map_cache: MapCache,
        /// Write cache, on or off; off: acknowledge writes only when they are durable [default: on]
        #[arg(long, value_name = "WHETHER", value_parser = one_of::<WriteCache>(&["on", "off"]),
            hide_possible_values = true)]
        write_cache: WriteCache,
        /// Serve the drives read-only; write nothing to their backing
        #[arg(long, num_args = 0, default_missing_value = "true")]
        read_only: bool,
        /// Let NBD clients write to a drive that is attached on this machine: nothing coordinates them with
        /// what is mounted there
        #[arg(long, num_args = 0, default_missing_value = "true")]
        shared_writes: bool,
        /// Serve drives with a damaged log in the state before the damage
        #[arg(long, num_args = 0, default_missing_value = "true", requires = "read_only")]
        accept_damage: bool,
        /// Direct I/O (bypass the page cache): auto, on or off [default: auto]
        #[arg(long, value_name = "WHETHER", value_parser = one_of::<DirectIo>(&["auto", "on", "off"]),
            hide_possible_values = true)]
        direct: DirectIo,
        /// Physical space usage levels that raise an event, in percent, or off [default: 80,90,95]
        #[arg(long, value_name = "LEVELS")]
        warn_at: Levels,
        /// Command run by `sh -c` for each event, with PUMICE_EVENT, PUMICE_DRIVE, PUMICE_MESSAGE and more in
        /// its environment
        #[arg(long, value_name = "COMMAND")]
        on_event: CommandText,
        /// Throttle writes from this usage of the space for data on, progressively until the drive is full;
        /// auto: from 95 on, if the capacity needs data that compresses; off: never [default: auto]
        #[arg(long, value_name = "PERCENT")]
        throttle_at: ThrottleAt,
        /// Lowest write rate that throttling enforces, in bytes per second [default: 4M]
        #[arg(long, value_name = "SIZE")]
        throttle_floor: ThrottleFloor,
        /// Verify all records once in this time, such as 30d or 12h, spread over it; off: only by check
        /// --deep [default: off]
        #[arg(long, value_name = "TIME")]
        scrub_every: ScrubEvery,
        /// Writes that find no space: error: they fail at once; wait:SECONDS: they are held, and fail after
        /// that time [default: error]
        #[arg(long, value_name = "HOW")]
        when_full: FullText,
        /// Share of one processor, per drive, for recompression in the background; 0 disables it [default:
        /// 10]
        #[arg(long, value_name = "PERCENT")]
        background_cpu: BackgroundCpu,
    }
}

/// Paths of the PEM files for TLS.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TlsTable {
    pub(super) cert: AbsolutePath,
    pub(super) key: AbsolutePath,
    pub(super) ca: Option<AbsolutePath>,
    pub(super) crl: Option<AbsolutePath>,
}

/// Returns the addresses in a value of the file.
pub(super) fn addresses(list: Option<&Vec<AbsoluteAddress>>) -> Vec<Address> {
    list.into_iter().flatten().map(|address| address.0.clone()).collect()
}

impl DriveOptions {
    /// Takes the lists of clients that may use the drive.
    pub(super) fn take_access(&mut self) -> Access {
        let names = |list: Option<Vec<Client>>| list.into_iter().flatten().map(|client| client.0).collect();
        match (self.clients.take(), self.clients_read_only.take()) {
            (None, None) => Access::Everyone,
            (read_write, read_only) => {
                Access::Listed { read_write: names(read_write), read_only: names(read_only) }
            }
        }
    }

    /// Takes the way to attach the drive, if `pumice attach --configured` is to attach it.
    ///
    /// # Errors
    /// If there is a way for a drive that it is not to attach.
    pub(super) fn take_attach(&mut self) -> Result<Option<AttachMethod>, &'static str> {
        match (self.attach.take(), self.by.take()) {
            (Some(true), by) => Ok(Some(by.map_or(AttachMethod::default(), |by| by.0))),
            (_, None) => Ok(None),
            (_, Some(_)) => Err("by needs attach = true beside it"),
        }
    }

    /// Returns the settings for opening the drive.
    pub(crate) fn open(&self) -> OpenSettings {
        let DriveOptions { throttle_at, throttle_floor, .. } = self.clone();
        let (throttle_at, throttle_floor) =
            (throttle_at.unwrap_or_default(), throttle_floor.unwrap_or_default());
        let floor_bytes_per_second = throttle_floor.0.0.max(1);
        OpenSettings {
            map_budget_bytes: self.map_cache.clone().unwrap_or_default().0.0,
            write_cache: self.write_cache.clone().unwrap_or_default().0,
            read_only: self.read_only.unwrap_or_default(),
            accept_damage: self.accept_damage.unwrap_or_default(),
            take_over: false,
            forget_memory: false,
            direct: self.direct.clone().unwrap_or_default().0,
            monitor: MonitorSettings {
                warn_at: self.warn_at.clone().unwrap_or_default().0,
                on_event: self.on_event.clone().unwrap_or_default().0,
            },
            throttle: match throttle_at {
                ThrottleAt::Off => Throttling::Off,
                ThrottleAt::Auto => Throttling::Auto(floor_bytes_per_second),
                ThrottleAt::Percent(percent) => {
                    Throttling::At(ThrottleSettings { at_percent: percent.0, floor_bytes_per_second })
                }
            },
            scrub_every: self.scrub_every.clone().unwrap_or_default().0,
            when_full: self.when_full.clone().unwrap_or_default().0,
            background_cpu_percent: self.background_cpu.clone().unwrap_or_default().0,
        }
    }
}
