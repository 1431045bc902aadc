//! Addresses of NVMe/TCP.

use std::fmt;
use std::str::FromStr;

use super::{AddressError, DISCOVERY_NQN, NQN_MAX_BYTES, NSID_MAX, SCHEME_NVME_TCP};

/// Port of NVMe over Fabrics (IANA, *nvme*), where an address names none.
const PORT_DEFAULT: u16 = 4420;

const FORM: &str = "expected nvme-tcp://HOST/NQN, nvme-tcp://HOST:PORT/NQN or nvme-tcp://[IPV6]:PORT/NQN, and after ? \
    nsid=N";

/// A namespace of a subsystem at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeTcpAddress {
    /// Name or IP address, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// NVMe Qualified Name of the subsystem.
    pub nqn: String,
    /// Namespace ID; `None`: the only one there is.
    pub nsid: Option<u32>,
}

impl FromStr for NvmeTcpAddress {
    type Err = AddressError;

    /// Parses `nvme-tcp://HOST[:PORT]/NQN[?nsid=N]`.
    fn from_str(text: &str) -> Result<NvmeTcpAddress, AddressError> {
        let (base, query) = match text.split_once('?') {
            Some((base, query)) => (base, Some(query)),
            None => (text, None),
        };
        let rest = base.strip_prefix(SCHEME_NVME_TCP).ok_or(FORM)?;
        let (place, nqn) = rest.split_once('/').ok_or(FORM)?;
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(FORM)?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(FORM)?) })
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let is_odd = |text: &str| text.chars().any(|it| it.is_whitespace() || it.is_control());
        if host.is_empty() || host.contains('[') || is_odd(host) {
            return Err(FORM.into());
        }
        let port = match port {
            Some(port) => {
                port.parse().ok().filter(|port| *port > 0).ok_or("expected a port from 1 to 65535")?
            }
            None => PORT_DEFAULT,
        };
        if nqn.is_empty() || nqn.len() > NQN_MAX_BYTES || is_odd(nqn) {
            return Err(AddressError::Nqn);
        }
        if nqn == DISCOVERY_NQN {
            return Err(AddressError::DiscoveryService);
        }
        let nsid = match query {
            Some(query) => {
                let nsid = query.strip_prefix("nsid=").ok_or(FORM)?.parse().ok();
                let nsid = nsid.filter(|nsid| (1..=NSID_MAX).contains(nsid));
                Some(nsid.ok_or(AddressError::NamespaceId)?)
            }
            None => None,
        };
        Ok(NvmeTcpAddress { host: host.to_string(), port, nqn: nqn.to_string(), nsid })
    }
}

impl fmt::Display for NvmeTcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{SCHEME_NVME_TCP}{host}:{}/{}", self.port, self.nqn)?;
        self.nsid.map_or(Ok(()), |nsid| write!(f, "?nsid={nsid}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, host, port, nqn, nsid) in [
            ("nvme-tcp://h/nqn.2026-11.org:a", "h", 4420, "nqn.2026-11.org:a", None),
            ("nvme-tcp://10.0.0.1:8009/n?nsid=3", "10.0.0.1", 8009, "n", Some(3)),
            ("nvme-tcp://[fe80::1%eth0]/n", "fe80::1%eth0", 4420, "n", None),
            ("nvme-tcp://[::1]:1/a/b?nsid=4294967294", "::1", 1, "a/b", Some(4_294_967_294)),
        ] {
            let address: NvmeTcpAddress = text.parse().expect(text);
            let expected = NvmeTcpAddress { host: host.to_string(), port, nqn: nqn.to_string(), nsid };
            assert_eq!(address, expected);
            assert_eq!(address.to_string().parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("nvme-tcp://h/{}", "n".repeat(NQN_MAX_BYTES + 1));
        let discovery = format!("nvme-tcp://h/{DISCOVERY_NQN}");
        for bad in [
            "nvme-tcp://",
            "nvme-tcp://h",
            "nvme-tcp://h/",
            "nvme-tcp:///n",
            "nvme-tcp://:4420/n",
            "nvme-tcp://h:/n",
            "nvme-tcp://h:0/n",
            "nvme-tcp://h:65536/n",
            "nvme-tcp://::1/n",
            "nvme-tcp://[::1/n",
            "nvme-tcp://[::1]4420/n",
            "nvme-tcp://h/a b",
            "nvme-tcp://h/n?",
            "nvme-tcp://h/n?nsid=",
            "nvme-tcp://h/n?nsid=0",
            "nvme-tcp://h/n?nsid=4294967295",
            "nvme-tcp://h/n?nsid=1&nsid=2",
            "nvme-tcp://h/n?ns=1",
            &long,
            &discovery,
        ] {
            assert!(bad.parse::<NvmeTcpAddress>().is_err(), "{bad}");
        }
    }
}
