#!/usr/bin/env python3
"""Checks HTML reports in Chromium: three widths, light and dark.

    scripts/report-widths.py [--pictures FOLDER] FILE.html...

For each page, width and scheme it fails if the page scrolls sideways, if text is smaller than 11 pixels as
drawn, if text has a contrast of less than 4.5 with the background of the page, or if the page holds "NaN". With
--pictures it saves a PNG of each. It skips, with exit status 0, where there is no Chromium (CHROMIUM names one).
"""
import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

WIDTHS = (390, 820, 1440)
SCHEMES = ("light", "dark")

# Returns what is wrong with the page, as a list of texts.
LOOK = """(() => {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) found.push(`scrolls sideways: ${root.scrollWidth} px in ${innerWidth}`);
  if (/\\bNaN\\b|undefined/.test(document.body.innerText)) found.push("shows NaN or undefined");
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  };
  const back = light(getComputedStyle(document.body).backgroundColor);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  const say = (text) => { if (!seen.has(text)) { seen.add(text); found.push(text); } };
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const text = node.textContent.trim(), element = node.parentElement;
    const box = element.getBoundingClientRect();
    if (!text || box.width < 2 || !element.checkVisibility() || element.closest("style, .axis")) continue;
    const style = getComputedStyle(element), svg = element.ownerSVGElement;
    const scale = svg ? svg.getScreenCTM().a : 1;
    const size = parseFloat(style.fontSize) * scale;
    if (size < 11) say(`text of ${size.toFixed(1)} px: ${text.slice(0, 40)}`);
    const front = light(svg ? style.fill : style.color);
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (contrast < 4.5) say(`contrast of ${contrast.toFixed(1)}: ${text.slice(0, 40)}`);
    if (box.right > innerWidth + 1 && !element.closest(".table"))
      say(`beyond the right edge: ${text.slice(0, 40)}`);
  }
  return found;
})()"""


class Browser:
    """A headless Chromium, spoken to by the DevTools protocol over two pipes."""

    def __init__(self, program, profile):
        to_browser, self.writer = os.pipe()
        self.reader, from_browser = os.pipe()

        def pipes():
            # Chromium reads commands from descriptor 3 and writes answers to 4.
            one, other = os.dup(to_browser), os.dup(from_browser)
            os.dup2(one, 3)
            os.dup2(other, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pipes, close_fds=False)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.rest, self.session = 0, b"", None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def message(self):
        while b"\0" not in self.rest:
            part = os.read(self.reader, 1 << 20)
            if not part:
                sys.exit("Chromium ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **params):
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.writer, json.dumps(command).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]

    def open(self, url, width, scheme):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                 mobile=width < 500)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=url)
        while self.message().get("method") != "Page.loadEventFired":
            pass

    def look(self):
        return self.ask("Runtime.evaluate", expression=LOOK, returnByValue=True)["result"].get("value")

    def picture(self, path):
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description="Checks HTML reports at three widths, light and dark.")
    parser.add_argument("--pictures", type=pathlib.Path, help="folder for PNG files")
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    program = next(filter(None, (shutil.which(name) for name in names if name)), None)
    if program is None:
        print("skipped: there is no Chromium here")
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        try:
            for page in args.pages:
                for width in WIDTHS:
                    for scheme in SCHEMES:
                        browser.open(page.resolve().as_uri(), width, scheme)
                        found = browser.look()
                        if found is None:
                            found = ["the page could not be examined"]
                        wrong += len(found)
                        for text in found:
                            print(f"{page.name}, {width} px, {scheme}: {text}")
                        if args.pictures:
                            browser.picture(args.pictures / f"{page.stem}-{width}-{scheme}.png")
        finally:
            browser.close()
    print(f"{len(args.pages)} pages, {len(WIDTHS)} widths, {len(SCHEMES)} schemes: {wrong} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
