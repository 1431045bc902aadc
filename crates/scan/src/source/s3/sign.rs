//! Signatures of requests in their headers (AWS Signature Version 4), so that URLs, which end up in the logs
//! of servers and proxies, hold nothing secret.
//!
//! Source: AWS, *Authenticating Requests: Using the Authorization Header*; requests without a body only.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};
use ureq::http::Uri;

/// The characters that are not encoded in a query: "UriEncode" of the specification.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SECONDS_A_DAY: u64 = 86_400;

/// Keys that sign requests.
#[derive(Clone)]
pub(super) struct Signer {
    key: String,
    secret: String,
    token: Option<String>,
    region: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("key", &self.key).field("region", &self.region).finish_non_exhaustive()
    }
}

impl Signer {
    pub(super) fn new((key, secret, token): (String, String, Option<String>), region: String) -> Signer {
        Signer { key, secret, token, region }
    }

    /// Returns the headers to add to a GET of `url`, which has no query or one of [`with_query`], with these
    /// headers.
    pub(super) fn sign(
        &self,
        url: &Uri,
        headers: &[(&str, String)],
        now: SystemTime,
    ) -> Vec<(&'static str, String)> {
        let (date, time) = date_and_time(now);
        let nothing = hex(&Sha256::digest(b""));
        let mut added = vec![("x-amz-content-sha256", nothing.clone()), ("x-amz-date", time.clone())];
        added.extend(self.token.clone().map(|token| ("x-amz-security-token", token)));
        let host = url.authority().map_or("", |authority| authority.as_str());
        let mut signed: Vec<(&str, &str)> = vec![("host", host)];
        signed.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
        signed.extend(added.iter().map(|(name, value)| (*name, value.as_str())));
        signed.sort_unstable();
        let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let mut request = format!("GET\n{}\n{}\n", url.path(), url.query().unwrap_or_default());
        for (name, value) in signed {
            let _ = writeln!(request, "{name}:{}", value.trim());
        }
        let _ = write!(request, "\n{names}\n{nothing}");
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex(&Sha256::digest(request)));
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in scope.split('/') {
            key = keyed(&key, part);
        }
        let signature = hex(&keyed(&key, &text));
        let credential = format!("{}/{scope}", self.key);
        let authorization =
            format!("{ALGORITHM} Credential={credential},SignedHeaders={names},Signature={signature}");
        added.push(("authorization", authorization));
        added
    }
}

/// Returns a URL with its query encoded and sorted as signatures require.
pub(super) fn with_query(url: &str) -> String {
    let Some((url, query)) = url.split_once('?') else { return url.to_owned() };
    let encoded = |text: &str| {
        let text = text.replace('+', " ");
        utf8_percent_encode(&percent_decode_str(&text).decode_utf8_lossy(), UNRESERVED).to_string()
    };
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut pairs: Vec<(String, String)> =
        pairs.map(|(name, value)| (encoded(name), encoded(value))).collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{url}?{}", pairs.join("&"))
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    // A key may have any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns `YYYYMMDD` and `YYYYMMDDTHHMMSSZ` of a time, in UTC. Days to dates by the algorithm
/// `civil_from_days` (Howard Hinnant, *chrono-Compatible Low-Level Date Algorithms*).
fn date_and_time(now: SystemTime) -> (String, String) {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / SECONDS_A_DAY + 719_468, seconds % SECONDS_A_DAY);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March on.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let date = format!("{year:04}{month:02}{day:02}");
    let time = format!("{date}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60);
    (date, time)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Keys of the examples in AWS' documents.
    fn example() -> Signer {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        Signer::new(("AKIAIOSFODNN7EXAMPLE".into(), secret.into(), None), "us-east-1".into())
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn authorization(signer: &Signer, url: &str, headers: &[(&str, String)]) -> String {
        let added = signer.sign(&url.parse().expect("a URL"), headers, at(1_369_353_600));
        added.into_iter().find(|(name, _)| *name == "authorization").expect("signed").1
    }

    /// *Example: GET Object*, and *GET Bucket (List Objects)*.
    #[test]
    fn signs_as_in_the_examples_of_the_specification() {
        let range = [("range", "bytes=0-9".to_owned())];
        let object = authorization(&example(), "https://examplebucket.s3.amazonaws.com/test.txt", &range);
        assert_eq!(
            object,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let url = with_query("https://examplebucket.s3.amazonaws.com/?prefix=J&max-keys=2");
        let list = authorization(&example(), &url, &[]);
        let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(list.ends_with(&format!("Signature={signature}")), "{list}");
    }

    #[test]
    fn tokens_are_headers_and_signed() {
        let with_token = Signer { token: Some("TOKEN".into()), ..example() };
        let added = with_token.sign(&"http://h:9000/b/k".parse().expect("a URL"), &[], at(0));
        assert!(added.contains(&("x-amz-security-token", "TOKEN".into())));
        let signed = "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,";
        assert!(
            added.iter().any(|(name, value)| *name == "authorization" && value.contains(signed)),
            "{added:?}"
        );
        assert!(!format!("{with_token:?}").contains("TOKEN") && !format!("{with_token:?}").contains("wJalr"));
    }

    #[test]
    fn queries_are_sorted_and_encoded() {
        assert_eq!(with_query("http://h/p"), "http://h/p");
        assert_eq!(
            with_query("http://h/p?prefix=a+b/%C3%A4*~&list-type=2&b"),
            "http://h/p?b=&list-type=2&prefix=a%20b%2F%C3%A4%2A~"
        );
    }

    #[test]
    fn dates() {
        for (seconds, time) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (4_107_542_399, "21000228T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(date_and_time(at(seconds)), (time[..8].to_owned(), time.to_owned()));
        }
    }
}
