/** The device's camera: a view of it, and one picture taken from it. */

/** Have the page's buttons open the camera, take a picture of it, and close it. */
export function startCamera({ part, onPicture, onTrouble }) {
  let stream = null;

  function close() {
    for (const track of stream?.getTracks() ?? []) {
      track.stop();
    }
    stream = null;
    part("video").srcObject = null;
    part("camera-view").hidden = true;
  }

  part("camera").addEventListener("click", async () => {
    onTrouble(null);
    if (navigator.mediaDevices === undefined) {
      onTrouble(new Error("Browsers lend the camera to pages over TLS or from this machine alone; open a photograph instead."));
      return;
    }
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
      part("video").srcObject = stream;
      part("camera-view").hidden = false;
      await part("video").play();
    } catch (error) {
      close();
      onTrouble(new Error(`The camera cannot be used (${error.name}); open a photograph instead.`));
    }
  });

  part("take").addEventListener("click", () => {
    const video = part("video");
    const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    canvas.getContext("2d").drawImage(video, 0, 0);
    close();
    onPicture(canvas);
  });

  part("camera-end").addEventListener("click", close);
}
