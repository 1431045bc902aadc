//! Dates.

/// Formats a time in UTC as `2026-11-25 18:40:00 UTC`. `unix_seconds` are seconds since 1970. The date from a
/// number of days: H. Hinnant, *chrono-Compatible Low-Level Date Algorithms*.
pub fn utc(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400 + 719_468, unix_seconds % 86_400);
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34:56 UTC");
        assert_eq!(utc(1_795_630_990), "2026-11-25 18:23:10 UTC");
    }
}
